"""The CI job that runs the tests, from the environment variables of CI services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_torchprof.history.record import CiJob, Event

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Provider(NamedTuple):
    """The variables of a CI service."""

    name: str
    here: str
    """The variable that is set where it runs."""
    event: str
    """The variable that says why."""
    events: Mapping[str, Event]
    run: str
    attempt: str = ""
    job: str = ""
    pr: str = ""
    """A variable that is set for pull requests alone, where the event does not tell them."""


# A merge queue tests a commit that nobody has on a branch, as a pull request does.
_PROVIDERS: Final = (
    _Provider(
        "github", "GITHUB_ACTIONS", "GITHUB_EVENT_NAME",
        {
            "push": Event.PUSH, "pull_request": Event.PR, "pull_request_target": Event.PR, "merge_group": Event.PR,
            "schedule": Event.SCHEDULE,
        },
        "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "GITHUB_JOB",
    ),
    _Provider(
        "gitlab", "GITLAB_CI", "CI_PIPELINE_SOURCE",
        {
            "push": Event.PUSH, "merge_request_event": Event.PR, "external_pull_request_event": Event.PR,
            "schedule": Event.SCHEDULE,
        },
        "CI_PIPELINE_ID", "", "CI_JOB_ID",
    ),
    _Provider(
        "buildkite", "BUILDKITE", "BUILDKITE_SOURCE",
        {"webhook": Event.PUSH, "schedule": Event.SCHEDULE},
        "BUILDKITE_BUILD_ID", "BUILDKITE_RETRY_COUNT", "BUILDKITE_JOB_ID", "BUILDKITE_PULL_REQUEST",
    ),
    _Provider(
        "azure", "TF_BUILD", "BUILD_REASON",
        {
            "IndividualCI": Event.PUSH, "BatchedCI": Event.PUSH, "PullRequest": Event.PR, "Schedule": Event.SCHEDULE,
        },
        "BUILD_BUILDID", "SYSTEM_JOBATTEMPT", "SYSTEM_JOBID",
    ),
    _Provider("circleci", "CIRCLECI", "", {}, "CIRCLE_WORKFLOW_ID", "", "CIRCLE_BUILD_NUM", "CIRCLE_PULL_REQUEST"),
    _Provider("jenkins", "JENKINS_URL", "", {}, "BUILD_ID", "", "JOB_NAME", "CHANGE_ID"),
)  # fmt: skip


def ci_job(variables: Mapping[str, str]) -> tuple[Event, CiJob | None]:
    """Return why the tests run, and in which job; the job is None if no CI service has set these variables."""
    provider = next((known for known in _PROVIDERS if variables.get(known.here)), None)
    if provider is None:
        unknown = variables.get("CI", "") not in ("", "0", "false")
        return (Event.OTHER, CiJob(provider="unknown")) if unknown else (Event.LOCAL, None)
    event = provider.events.get(variables.get(provider.event, ""), Event.OTHER)
    if variables.get(provider.pr, "false") not in ("", "false"):
        event = Event.PR
    ids = {name: variables.get(getattr(provider, name)) or None for name in ("run", "attempt", "job")}
    return event, CiJob(provider=provider.name, **ids)
