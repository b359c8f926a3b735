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


class _Built(NamedTuple):
    """A variable that names the branch whose commit a CI service has checked out."""

    variable: str
    tag: str = ""
    """One that has a value where what is built is a tag, and the name is the tag's: any but "branch"."""
    here: str = ""
    """One that is set where the service runs, for names that are not its own."""


# The first that is set tells: GitHub names another one for a pull request, and Azure the last part of a name alone.
_BUILT: Final = (
    _Built("GITHUB_HEAD_REF"),
    _Built("GITHUB_REF_NAME", "GITHUB_REF_TYPE"),
    _Built("CI_COMMIT_REF_NAME", "CI_COMMIT_TAG"),
    _Built("BUILDKITE_BRANCH", "BUILDKITE_TAG"),
    _Built("BUILD_SOURCEBRANCH", here="TF_BUILD"),
    _Built("BUILD_SOURCEBRANCHNAME", here="TF_BUILD"),
    _Built("CIRCLE_BRANCH", "CIRCLE_TAG"),
    _Built("BRANCH_NAME", "TAG_NAME", here="JENKINS_URL"),
    _Built("GIT_BRANCH", "TAG_NAME", here="JENKINS_URL"),
)
_HEADS: Final = "refs/heads/"


def branch_in(variables: Mapping[str, str]) -> str | None:
    """Return the branch that a CI service builds, which checks out a commit alone; None for a tag, and without CI."""
    for built in _BUILT:
        name = variables.get(built.variable)
        if not name or (built.here and not variables.get(built.here)):
            continue
        if variables.get(built.tag, "branch") not in ("", "branch"):
            return None
        if name.startswith("refs/"):
            return name.removeprefix(_HEADS) if name.startswith(_HEADS) else None
        if built.variable == "GIT_BRANCH":
            # Jenkins names the remote too, which is "origin" unless somebody calls it otherwise.
            return None if name == "detached" else name.removeprefix("origin/")
        return name
    return None


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
