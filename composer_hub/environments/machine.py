"""A private root made of a Dockerfile, without containers: commands as several users, with limits and without network.

`FROM python:X.Y` becomes a virtual environment at /usr/local; programs come read-only from this machine. Layers before
the first COPY are kept. Switching users needs root, so this is for root only. Commands of the root user are less
isolated than those of `sandbox`: the kernel does not limit root's processes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from composer_hub import exits
from composer_hub.environments import dockerfile, trees
from composer_hub.environments.bubblewrap import DEVICES, launch
from composer_hub.environments.dockerfile import Instruction, UnsupportedDockerfile
from composer_hub.environments.interpreter import linked
from composer_hub.environments.process import Completed, Limits

_CAPABILITIES = "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID".split()
_PROGRAMS = ("bin", "sbin", "lib", "lib64", "libexec", "share")
_FOLDERS = (
    "etc home logs/agent logs/verifier logs/artifacts opt proc dev root run solution tests tmp usr/local/bin var/tmp"
).split()
_NETWORK = ("/etc/resolv.conf", "/etc/ssl", "/etc/pip.conf")
_DAY = 86_400.0


class MachineError(exits.ComposerError, RuntimeError):
    """A Dockerfile whose commands fail, or a file that cannot be moved."""


def interpreters() -> dict[str, Path]:
    """Return the installed Pythons: version -> prefix."""
    found = {"{}.{}".format(*sys.version_info): Path(sys.base_prefix)}
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for folder in (pyenv / "versions", Path.home() / ".local/share/uv/python"):
        for python in sorted(folder.glob("*/bin/python3.*[0-9]")):
            found.setdefault(python.name.removeprefix("python"), python.parents[1])
    return found


def _layers_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "composer-hub", "layers")


class Machine:
    """One private root; `close` removes it."""

    def __init__(
        self,
        context: Path,  # the folder with the Dockerfile
        *,
        network: bool = False,  # after the build
        memory_mb: int = 4096,
        cpus: int = 0,
        layers: Path | None = None,
    ) -> None:
        if os.geteuid() != 0:
            raise UnsupportedDockerfile("Images without Docker need root, because tasks switch users. Use Docker.")
        self.context, self.network, self.memory_mb, self.cpus = context, network, memory_mb, cpus
        text = (context / "Dockerfile").read_text(encoding="utf-8")
        dockerfile.check(text)
        self.instructions = dockerfile.parse(text)
        (base,) = (one for one in self.instructions if one.name == "FROM")
        version = dockerfile.python_of(base)
        pythons = interpreters()
        if version not in pythons:
            raise UnsupportedDockerfile(
                f"The image needs Python {version}; here are {', '.join(sorted(pythons))}. Install it, or use Docker."
            )
        self.prefix, self.env, self.cwd, self.user = pythons[version], dict[str, str](), "/", "root"
        self.home = Path(tempfile.mkdtemp(prefix="composer-machine-"))
        self.root = self.home / "root"
        self.layers = layers or _layers_folder()

    def build(self) -> None:
        """Execute the Dockerfile."""
        cached = list(_before_copy(self.instructions))
        names = [(one.name, one.text) for one in cached if one.name not in ("LABEL", "CMD")]
        layer = self.layers / hashlib.sha256(json.dumps([names, str(self.prefix)]).encode()).hexdigest()[:24]
        if layer.is_dir():
            subprocess.run(["cp", "-a", "--reflink=auto", layer, self.root], check=True)
        else:
            self._make_root()
        for number, one in enumerate(self.instructions):
            if number == len(cached) and not layer.is_dir():
                self._keep(layer)
            self._step(one, is_cached=number < len(cached) and layer.is_dir())
        for folder in ("agent", "verifier", "artifacts"):
            (self.root / "logs" / folder).mkdir(parents=True, exist_ok=True)
            os.chmod(self.root / "logs" / folder, 0o777)

    def run(
        self,
        command: str,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        seconds: float | None = None,
        network: bool | None = None,
        stderr: int = subprocess.STDOUT,
    ) -> Completed:
        """Run a shell command in the machine."""
        with_network = self.network if network is None else network
        user = user or self.user
        switch: list[str] = []
        if user not in ("root", "0"):
            switch = ["/usr/bin/setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
        variables = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin", "LANG": "C.UTF-8"}
        variables["HOME"] = "/root" if not switch else f"/home/{user}"
        if with_network:
            variables |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT"))}
        place = cwd or self.cwd
        return launch(
            [*self._mounts(with_network), "--chdir", place],
            [*switch, "/bin/bash", "-c", command],
            env=variables | self.env | dict(env or {}),
            limits=Limits(
                seconds=seconds or _DAY, cpu_seconds=int(seconds or _DAY) + 1, memory_mb=self.memory_mb, processes=512,
                file_mb=4096, output_chars=1_000_000,
            ),
            stderr=stderr,
            cpus=self.cpus,
        )  # fmt: skip

    def read(self, path: str) -> bytes:
        """Return a file of the machine; links are not followed, because an agent may have made them."""
        return trees.read_file(self.root, path.lstrip("/"), most=256 << 20)

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file into the machine."""
        trees.write_file(self.root, path.lstrip("/"), data)
        if executable:
            os.chmod(self.root / path.lstrip("/"), 0o755)

    def put(self, source: Path, target: str) -> None:
        """Copy a file or a folder of this machine into the private one."""
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file() and not path.is_symlink():
                place = f"{target}/{path.relative_to(source)}" if source.is_dir() else target
                self.write(place, path.read_bytes(), executable=os.access(path, os.X_OK))

    def take(self, source: str, target: Path) -> None:
        """Copy a file or a folder of the private machine to this one; links and devices are left out."""
        inside = source.strip("/")
        place = self.root / inside
        if any(one.is_symlink() for one in (place, *place.parents) if one.is_relative_to(self.root)):
            raise MachineError(f"{source} is behind a link, which is not followed.")
        if not place.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.read(source))
            return
        target.mkdir(parents=True, exist_ok=True)
        for folder, _, names in os.walk(place):
            for name in names:
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink():
                    copy = target / path.relative_to(place)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.write_bytes(self.read(str(path.relative_to(self.root))))

    def close(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)

    # ------------------------------------------------------------------------------------------------------- the build

    def _mounts(self, network: bool) -> list[str]:
        argv = [part for name in _CAPABILITIES for part in ("--cap-add", f"CAP_{name}")]
        argv += ["--bind", str(self.root), "/"]
        for name in _PROGRAMS:
            if Path("/usr", name).exists():
                argv += ["--ro-bind", f"/usr/{name}", f"/usr/{name}"]
        argv += ["--ro-bind", str(self.prefix / "bin"), str(self.prefix / "bin")]
        argv += ["--ro-bind", str(self.prefix / "lib"), str(self.prefix / "lib")]
        packages = [*self.prefix.glob("lib/python3.*/site-packages"), *Path("/usr/lib").glob("python3*/dist-packages")]
        for path in packages:  # a copy of the task's solution may be installed here
            argv += ["--tmpfs", str(path)]
        shared = ["/etc/alternatives", *(_NETWORK if network else ())]
        argv += [part for path in shared if Path(path).exists() for part in ("--ro-bind", path, path)]
        if network:
            links = [Path(one) for one in os.environ.get("PIP_FIND_LINKS", "").split() if Path(one).is_dir()]
            argv += [part for path in links for part in ("--ro-bind", str(path), str(path))]
        else:
            argv.append("--unshare-net")
        return [*argv, *DEVICES]

    def _make_root(self) -> None:
        """Make the image of FROM, once per interpreter."""
        base = self.layers / f"base-{hashlib.sha256(str(self.prefix).encode()).hexdigest()[:24]}"
        if not base.is_dir():
            self._make_base()
            self._keep(base)
        else:
            subprocess.run(["cp", "-a", "--reflink=auto", base, self.root], check=True)

    def _make_base(self) -> None:
        for name in (*_FOLDERS, str(self.prefix).lstrip("/")):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for name, mode in (("", 0o755), ("tmp", 0o1777), ("var/tmp", 0o1777)):
            os.chmod(self.root / name, mode)
        for name, target in linked():
            os.symlink(target or f"usr{name}", self.root / name.lstrip("/"))
        if not (self.root / "sbin").exists():
            os.symlink("usr/sbin", self.root / "sbin")
        texts = {"passwd": "root:x:0:0:root:/root:/bin/bash\n", "group": "root:x:0:\n", "shadow": "", "gshadow": "",
                 "hosts": "127.0.0.1 localhost\n", "resolv.conf": "", "pip.conf": ""}  # fmt: skip
        for name, text in texts.items():
            (self.root / "etc" / name).write_text(text)
        for name in ("ld.so.cache", "nsswitch.conf", "login.defs"):
            if Path("/etc", name).is_file():
                shutil.copy(Path("/etc", name), self.root / "etc")
        self._must(f"{shlex.quote(str(self.prefix / 'bin' / 'python3'))} -m venv --copies /usr/local", network=False)

    def _keep(self, layer: Path) -> None:
        layer.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=layer.parent, prefix=".layer-") as scratch:
            subprocess.run(["cp", "-a", "--reflink=auto", self.root, Path(scratch, "root")], check=True)
            try:
                os.rename(Path(scratch, "root"), layer)
            except OSError:
                if not layer.is_dir():  # another process was faster
                    raise

    def _step(self, one: Instruction, *, is_cached: bool) -> None:
        if one.name in ("ENV", "ARG"):
            self.env |= {name: dockerfile.filled(value, self.env) for name, value in dockerfile.pairs_of(one).items()}
        elif one.name == "WORKDIR":
            self.cwd = os.path.normpath(os.path.join(self.cwd, dockerfile.filled(one.text, self.env)))
            if not is_cached:
                self._must(f"mkdir -p {shlex.quote(self.cwd)}", cwd="/", network=False)
        elif one.name == "USER":
            self.user = one.text.partition(":")[0]
        elif one.name in ("COPY", "ADD"):
            self._copy(one)
        elif one.name == "RUN" and not is_cached and (command := dockerfile.command_of(one)):
            self._must(command, network=True)

    def _must(self, command: str, *, network: bool, cwd: str = "") -> None:
        done = self.run(command, cwd=cwd, network=network, seconds=900)
        if done.exit_code != 0:
            raise MachineError(f"The build's command failed ({done.exit_code}): {command}\n{done.output[-1500:]}")

    def _copy(self, one: Instruction) -> None:
        words = shlex.split(dockerfile.filled(one.text, self.env))
        options = [word for word in words if word.startswith("--")]
        *sources, last = [word for word in words if not word.startswith("--")]
        if any(not option.startswith(("--chown=", "--chmod=")) for option in options) or "://" in one.text:
            raise UnsupportedDockerfile(f"Line {one.line} of the Dockerfile needs a container: {one.name} {one.text}.")
        target = os.path.normpath(os.path.join(self.cwd, last))
        for source in _matching(self.context, sources, one):
            is_inside = last.endswith("/") or len(sources) > 1 or (self.root / target.lstrip("/")).is_dir()
            place = f"{target}/{source.name}" if source.is_file() and is_inside else target
            if one.name == "ADD" and source.is_file() and tarfile.is_tarfile(source):
                self._unpack(source, place := target)
            else:
                self.put(source, place)
            for option in options:
                name, _, value = option.removeprefix("--").partition("=")
                program = {"chown": "chown -R", "chmod": "chmod -R"}[name]
                self._must(f"{program} {shlex.quote(value)} {shlex.quote(place)}", network=False, cwd="/")

    def _unpack(self, archive: Path, target: str) -> None:
        with tempfile.TemporaryDirectory() as folder, tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
            self.put(Path(folder), target)


def _before_copy(instructions: Sequence[Instruction]) -> Iterator[Instruction]:
    for one in instructions:
        if one.name in ("COPY", "ADD"):
            return
        yield one


def _matching(context: Path, names: Sequence[str], one: Instruction) -> Iterator[Path]:
    for name in names:
        inside = os.path.normpath(name.lstrip("/"))
        found = sorted(context.glob(inside)) if inside != "." else [context]
        if inside.startswith("..") or not found:
            raise MachineError(f"Line {one.line} of the Dockerfile copies {name!r}, which is not in {context}.")
        yield from found
