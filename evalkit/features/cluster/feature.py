"""The hooks of clusters."""

from __future__ import annotations

from evalkit.errors import UsageError
from evalkit.execution.executor import CaseExecutor, ExecutorRequest
from evalkit.features.cluster.dask_executor import Address, parse_address
from evalkit.features.cluster.session import ClusterSession
from evalkit.hooks import Feature, Options, SessionPart


class Cluster(Feature):
    """Cases that run on the workers of a Dask cluster."""

    name = "cluster"

    def configure(self, options: Options) -> SessionPart:
        text = options.read("executor")
        try:
            return CasesOnCluster(parse_address(text))
        except ValueError as error:
            raise UsageError(f"{options.name_source('executor')}: {text!r} is not {error}") from None


class CasesOnCluster(SessionPart):
    """The cluster that runs the cases of a session."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def build_executor(self, request: ExecutorRequest) -> CaseExecutor:
        if request.is_distributed:
            raise UsageError(
                "--evalkit-executor and -n exclude each other: the workers of the cluster are the processes"
            )
        if request.settings.max_tokens is not None:
            raise UsageError(
                "--evalkit-max-tokens: processes of a cluster count no tokens together; use --evalkit-max-cost"
            )
        return ClusterSession(self._address, request)
