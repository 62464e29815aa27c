# SPDX-License-Identifier: Apache-2.0
"""Advice about requests that a broker refuses: the role is unknown, or not allowed.

The codes and sentences are those of Pulsar 4.0.7.
"""

from __future__ import annotations

import re
import shlex

from pulsar_spark.client.credentials import CredentialProvider
from pulsar_spark.topics import TopicName

#: The codes of such refusals.
AUTHENTICATION = "AuthenticationError"
AUTHORIZATION = "AuthorizationError"

#: The action that a role needs for a request. Other requests need either action.
_ACTIONS = {
    "PRODUCER": "produce",
    "SUBSCRIBE": "consume",
    "UNSUBSCRIBE": "consume",
    "SEEK": "consume",
    "GET_LAST_MESSAGE_ID": "consume",
}

#: "Failed to create consumer - The subscription name needs to be prefixed by the
#: authentication role, like ROLE-xxxx for topic: TOPIC".
_NEEDS_PREFIX = "subscription name needs to be prefixed"


#: "Exception occurred while trying to authorize lookup".
_UNDECIDED = re.compile("Exception occurr?ed while trying to authorize")


def is_undecided(sentence: str) -> bool:
    """Return whether a broker could not find out what a role may do, and so refused.

    As where its metadata store does not answer.
    """
    return _UNDECIDED.search(sentence) is not None


def cure(
    code: str,
    sentence: str,
    credentials: CredentialProvider | None,
    request: str = "",
    subject: str = "",
) -> str:
    """Return what to do about a refusal, in sentences.

    Args:
        code: `AUTHENTICATION` or `AUTHORIZATION`.
        sentence: The broker's own.
        credentials: The credentials shown; None for nothing.
        request: The protocol's name of what was refused, "" for the connection.
        subject: The topic or the namespace that the request is about, "" for none.
    """
    if code == AUTHENTICATION:
        if credentials is None:
            return (
                "It wants to know who connects: set"
                " `pulsar.client.authPluginClassName` and `pulsar.client.authParams`,"
                " or let it take clients without a role (`anonymousUserRole`)."
            )
        return (
            f"It did not accept the method {credentials.method}, or what proves it. "
            f"{credentials.advice}"
        )
    role = "" if credentials is None else credentials.role()
    if _NEEDS_PREFIX in sentence:
        return (
            "Let `subscriptionPrefix`, and `predefinedSubscription` where it is given,"
            f" begin with {f'the role {role!r}' if role else 'the role that connects'}."
        )
    if credentials is None:
        role_text = "Who does not authenticate has the role `anonymousUserRole`, which"
    else:
        role_text = f"The role {role!r}" if role else "The role that connects"
    role = role or "ROLE"
    if not subject:
        return f"{role_text} is not allowed this."
    action = _ACTIONS.get(request, "")
    namespace, topic = _parts(subject)
    grant = f"--role {shlex.quote(role)} --actions {action or 'consume'}"
    missing = f"the action {action}" if action else "both consume and produce"
    what = f"topic {topic}" if topic else f"namespace {namespace}"
    # Names are what others chose, and the line is for a shell.
    of_namespace, of_topic = shlex.quote(namespace), shlex.quote(topic)
    commands = [f"`pulsar-admin namespaces grant-permission {of_namespace} {grant}`"]
    if topic:
        commands.append(f"`pulsar-admin topics grant-permission {of_topic} {grant}`")
    hint = "" if action else "; produce, in order to write"
    return (
        f"{role_text} lacks {missing} on the {what}. Grant it by"
        f" {' or, for this topic alone, by '.join(commands)} (which takes away what it"
        f" does not name{hint})."
    )


def _parts(subject: str) -> tuple[str, str]:
    """Return the namespace and the topic of a subject; the topic is "" if none."""
    if "://" not in subject:
        return subject, ""
    name = TopicName.parse(subject)
    return name.namespace_name, name.base.full_name
