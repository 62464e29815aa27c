// SPDX-License-Identifier: Apache-2.0

import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.pulsar.broker.resources.PulsarResources;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.SystemTopicNames;
import org.apache.pulsar.common.partition.PartitionedTopicMetadata;
import org.apache.pulsar.common.policies.data.ClusterData;
import org.apache.pulsar.common.policies.data.Policies;
import org.apache.pulsar.common.policies.data.TenantInfo;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;
import org.apache.pulsar.metadata.bookkeeper.BKCluster;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/**
 * What brokers of one cluster share, in one JVM: ZooKeeper, a bookie, and what is written
 * into the metadata store before the first broker starts. Pulsar's own classes for the last
 * ask for the jars of the table service, which are not on the class path.
 *
 * <p>Arguments: the folder of the data, ports of ZooKeeper and of the bookie, the bookie's
 * configuration, the file to make when all is ready, the cluster's name and URLs.
 */
public class ClusterStore {
    private static final int COORDINATORS = 3;
    private static final int TICK_MS = 1000; // a session may last 2 of them or more
    private static final int CONNECTIONS = 500;

    public static void main(String[] arguments) throws Exception {
        try {
            start(arguments);
        } catch (Throwable failure) { // threads of what has started would go on
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void start(String[] arguments) throws Exception {
        Path data = Path.of(arguments[0]);
        int zooKeeperPort = Integer.parseInt(arguments[1]);
        int bookiePort = Integer.parseInt(arguments[2]);
        File bookieConfiguration = new File(arguments[3]);
        Path ready = Path.of(arguments[4]);

        File zooKeeper = Files.createDirectories(data.resolve("zookeeper")).toFile();
        ServerCnxnFactory.createFactory(
                        new InetSocketAddress("127.0.0.1", zooKeeperPort), CONNECTIONS)
                .startup(new ZooKeeperServer(zooKeeper, zooKeeper, TICK_MS));
        String url = "zk:127.0.0.1:" + zooKeeperPort;
        ServerConfiguration bookie = new ServerConfiguration();
        bookie.loadConf(bookieConfiguration.toURI().toURL());
        BKCluster.BKClusterConf cluster = BKCluster.builder()
                .baseServerConfiguration(bookie)
                .metadataServiceUri(url)
                .numBookies(1)
                .dataDir(data.resolve("bookkeeper").toString())
                .clearOldData(false);
        for (Method method : cluster.getClass().getMethods()) {
            if (method.getName().equals("bkPort")) { // Pulsar 5 finds a free port itself
                method.invoke(cluster, bookiePort);
            }
        }
        cluster.build();
        setUp(url, arguments[5], arguments[6], arguments[7]);
        Files.createFile(ready);
    }

    /** Its constructor takes another type of store in Pulsar 5. */
    private static PulsarResources resourcesOf(MetadataStoreExtended store)
            throws Exception {
        for (Constructor<?> constructor : PulsarResources.class.getConstructors()) {
            if (constructor.getParameterCount() == 2) {
                return (PulsarResources) constructor.newInstance(store, store);
            }
        }
        throw new NoSuchMethodException("PulsarResources of two stores");
    }

    private static void setUp(String url, String cluster, String web, String binary)
            throws Exception {
        try (MetadataStoreExtended store =
                PulsarResources.createConfigMetadataStore(url, 30_000, false)) {
            PulsarResources resources = resourcesOf(store);
            resources.getClusterResources()
                    .createCluster(
                            cluster,
                            ClusterData.builder()
                                    .serviceUrl(web)
                                    .brokerServiceUrl(binary)
                                    .build());
            TenantInfo tenant = TenantInfo.builder().allowedClusters(Set.of(cluster)).build();
            for (String name : List.of("public", "pulsar")) {
                resources.getTenantResources().createTenant(name, tenant);
            }
            for (String name : List.of("public/default", "pulsar/system")) {
                Policies policies = new Policies();
                policies.replication_clusters = Set.of(cluster);
                resources.getNamespaceResources()
                        .createPolicies(NamespaceName.get(name), policies);
            }
            resources.getNamespaceResources()
                    .getPartitionedTopicResources()
                    .createPartitionedTopic(
                            SystemTopicNames.TRANSACTION_COORDINATOR_ASSIGN,
                            new PartitionedTopicMetadata(COORDINATORS));
        }
    }
}
