// SPDX-License-Identifier: Apache-2.0
// A TCP proxy on loopback that delivers each byte a fixed time after its arrival.
//
//     delayed_link LISTEN_PORT TARGET_PORT DELAY_US WINDOW_BYTES
//
// DELAY_US is for each way, so that a round trip takes twice as long. WINDOW_BYTES is
// the most that is under way in one direction of a connection, as a TCP window is. The
// proxy prints "ready" once it listens, and ends when its standard input ends.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK (256 * 1024)
#define MOST_PAIRS 2048

typedef struct chunk {
    struct chunk *next;
    long long due_ns;
    size_t begin, end;
    char bytes[CHUNK];
} chunk;

// One direction: chunks from `from` that are on their way to `to`.
typedef struct {
    int from, to;
    chunk *first, *last;
    size_t under_way;
    int has_ended;   // `from` sends no more
    int is_shut;     // and `to` knows
} way;

static way ways[2 * MOST_PAIRS];
static int n_ways;
static chunk *unused;
static long long delay_ns;
static size_t window;

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static chunk *take_chunk(void) {
    chunk *c = unused;
    if (c)
        unused = c->next;
    else if (!(c = malloc(sizeof *c)))
        die("malloc");
    c->next = NULL;
    c->begin = c->end = 0;
    return c;
}

static void drop_chunk(chunk *c) {
    c->next = unused;
    unused = c;
}

static void prepare(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void open_pair(int listener, int target) {
    int client = accept(listener, NULL, NULL);
    if (client < 0)
        return;
    int server = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = loopback(target);
    if (server < 0 || n_ways + 2 > 2 * MOST_PAIRS ||
        connect(server, (struct sockaddr *)&a, sizeof a) < 0) {
        close(client);
        if (server >= 0)
            close(server);
        return;
    }
    prepare(client);
    prepare(server);
    ways[n_ways++] = (way){.from = client, .to = server};
    ways[n_ways++] = (way){.from = server, .to = client};
}

// Read what has arrived. Chunks are filled: one due time for a chunk that still grows.
static void receive(way *w, long long now) {
    chunk *c = take_chunk();
    ssize_t n = recv(w->from, c->bytes, CHUNK, MSG_DONTWAIT);
    if (n <= 0) {
        drop_chunk(c);
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            w->has_ended = 1;
        return;
    }
    c->end = n;
    c->due_ns = now + delay_ns;
    if (w->last)
        w->last->next = c;
    else
        w->first = c;
    w->last = c;
    w->under_way += n;
}

// Send what is due; return whether the other side takes no more now.
static int deliver(way *w, long long now) {
    while (w->first && w->first->due_ns <= now) {
        chunk *c = w->first;
        ssize_t n = send(w->to, c->bytes + c->begin, c->end - c->begin,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN || errno == EINTR)
                return 1;
            w->has_ended = 1;
            n = c->end - c->begin; // nobody is there to take it
        }
        c->begin += n;
        w->under_way -= n;
        if (c->begin < c->end)
            return 1;
        w->first = c->next;
        if (!w->first)
            w->last = NULL;
        drop_chunk(c);
    }
    if (w->has_ended && !w->first && !w->is_shut) {
        shutdown(w->to, SHUT_WR);
        w->is_shut = 1;
    }
    return 0;
}

static void close_ended(void) {
    for (int i = 0; i < n_ways; i += 2) {
        if (!ways[i].is_shut || !ways[i + 1].is_shut)
            continue;
        close(ways[i].from);
        close(ways[i].to);
        n_ways -= 2;
        ways[i] = ways[n_ways];
        ways[i + 1] = ways[n_ways + 1];
        i -= 2;
    }
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    int target = atoi(argv[2]);
    delay_ns = atoll(argv[3]) * 1000;
    window = strtoull(argv[4], NULL, 10);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in a = loopback(atoi(argv[1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(listener, 512) < 0)
        die("listen");
    puts("ready");
    fflush(stdout);
    static struct pollfd polled[2 + 2 * MOST_PAIRS];
    for (;;) {
        long long now = now_ns(), wake = -1;
        close_ended();
        polled[0] = (struct pollfd){.fd = 0, .events = POLLIN};
        polled[1] = (struct pollfd){.fd = listener, .events = POLLIN};
        for (int i = 0; i < 2 * MOST_PAIRS && i < n_ways; i++)
            polled[2 + i] = (struct pollfd){.fd = -1};
        for (int i = 0; i < n_ways; i++) {
            // Of each pair, polled[2 + i] is the socket that way i reads from, and that
            // the other way writes to.
            way *w = &ways[i];
            int is_full = deliver(w, now);
            struct pollfd *from = &polled[2 + i], *to = &polled[2 + (i ^ 1)];
            if (!w->has_ended && w->under_way < window)
                from->fd = w->from, from->events |= POLLIN;
            if (is_full)
                to->fd = w->to, to->events |= POLLOUT;
            else if (w->first && (wake < 0 || w->first->due_ns < wake))
                wake = w->first->due_ns;
        }
        struct timespec t = {0, 0};
        if (wake >= 0) {
            long long left = wake - now_ns();
            if (left > 0)
                t = (struct timespec){left / 1000000000, left % 1000000000};
        }
        int before = n_ways;
        if (ppoll(polled, 2 + before, wake >= 0 ? &t : NULL, NULL) < 0 && errno != EINTR)
            die("ppoll");
        if (polled[0].revents) {
            char byte;
            if (read(0, &byte, 1) <= 0)
                return 0;
        }
        now = now_ns();
        for (int i = 0; i < before; i++)
            if (polled[2 + i].revents & (POLLIN | POLLHUP | POLLERR) &&
                !ways[i].has_ended && ways[i].under_way < window)
                receive(&ways[i], now);
        if (polled[1].revents & POLLIN)
            open_pair(listener, target);
    }
}
