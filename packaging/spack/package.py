# SPDX-License-Identifier: (Apache-2.0 OR MIT)
"""The package of mu2mpi for Spack. Its name there is py-mu2mpi, in a folder py_mu2mpi of a repository."""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyMu2mpi(PythonPackage):
    """Differentially private federated stochastic convex optimisation over MPI."""

    homepage = "https://arxiv.org/abs/2407.12396"
    pypi = "mu2mpi/mu2mpi-0.1.0.tar.gz"

    # OWNER: the account names of those who will maintain the package.
    maintainers("OWNER")

    license("BSD-3-Clause")

    # OWNER: `sha256sum dist/mu2mpi-0.1.0.tar.gz` of the released sdist.
    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    variant("analysis", default=True, description="Figures, reports and data frames")
    variant("digits", default=True, description="The data set of handwritten digits, which is the default")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")

    with default_args(type=("build", "run")):
        depends_on("py-h5py@3.10:")
        depends_on("py-mpi4py@4.1:")
        depends_on("py-numba@0.61:")
        depends_on("py-numpy@1.26:")
        depends_on("py-platformdirs@4:")
        depends_on("py-pydantic@2.6:")
        depends_on("py-requests@2.28:")
        depends_on("py-tomli-w@1.0:")
        depends_on("py-tqdm@4.60:")
        depends_on("py-typing-extensions@4.6:")

    # The smoke test starts ranks with mpirun, which must be of the library that mpi4py is built with.
    depends_on("mpi", type=("run", "test"))

    with when("+analysis"), default_args(type="run"):
        depends_on("py-jinja2@3.1:")
        depends_on("py-matplotlib@3.8:")
        depends_on("py-pandas@2.1:")
        depends_on("py-scipy@1.11:")

    depends_on("py-scikit-learn@1.3:", when="+digits", type="run")

    # Modules that import what only an extra installs are left out.
    import_modules = ["mu2mpi", "mu2mpi.cli", "mu2mpi.core", "mu2mpi.federation", "mu2mpi.privacy"]

    @run_after("install")
    def cache_smoke_test(self):
        """Keep the smoke test of the sdist, for `spack test run` on an installed package."""
        cache_extra_test_sources(self, "packaging")

    def test_two_ranks(self):
        """Run an experiment on two ranks, and read its result."""
        script = join_path(install_test_root(self), "packaging", "smoke-test.sh")
        bash = which("bash", required=True)
        bash(script, self.spec["mpi"].prefix.bin.mpirun, "-n", "2")
