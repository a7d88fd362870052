from mu2mpi._version import __version__ as __version__
from mu2mpi.analysis.runs import Runs as Runs, load as load, sweep as sweep
from mu2mpi.audit.trials import audit_trust_modes as audit_trust_modes
from mu2mpi.config.experiment import Experiment as Experiment
from mu2mpi.core.errors import InputError as InputError, Interrupted as Interrupted
from mu2mpi.core.registry import register as register
from mu2mpi.execution.job import run as run
from mu2mpi.results.callbacks import Callback as Callback
from mu2mpi.results.reader import read_result as read_result
from mu2mpi.results.result import Result as Result
