"""Uses `nfs3d` by the package nfs-rs. The argument is the folder that the server exports, so that this can compare.

The server listens on ports 2049 and 20048 of the loopback interface.
"""

import asyncio
import os
import pathlib
import sys

import nfs_rs

URL = "nfs://127.0.0.1/e"
OPTIONS = dict(versions=["3"], nfs_port=2049, mount_port=20048, noresvport=True, uid=0, gid=0)
OPTIONS |= dict(connect_timeout=60, operation_timeout=120)
LARGE = 20 << 20


def expect(holds, what):
    if not holds:
        sys.exit(f"nfs-rs: {what}")


def use(client, export):
    """Reads, writes and changes files with one client."""
    expect(client.version == nfs_rs.Version.NFS_V3, f"version {client.version}")
    names = sorted(os.listdir(export))
    expect(sorted(client.listdir("/")) == names, f"listing: {client.listdir('/')}")
    for name in names:
        data = (export / name).read_bytes()
        expect(client.stat(name).size == len(data), f"size of {name}")
        with client.open(name, "rb") as file:
            expect(file.read() == data, f"data read from {name}")

    client.mkdir("folder")
    for size in (0, 3, 4097, 1048575, LARGE):
        data = os.urandom(size)
        with client.open(f"folder/{size}", "wb") as file:
            file.write(data)
        expect((export / "folder" / str(size)).read_bytes() == data, f"data written to folder/{size}")

    many = [f"entry number {number:04} of a long listing" for number in range(400)]
    client.mkdir("many")
    for name in many:
        client.touch(f"many/{name}")
    expect(sorted(os.listdir(export / "many")) == many, "files that were made")
    expect(sorted(entry.name for entry in client.scandir("many")) == many, "long listing")

    client.rename("folder/3", "folder/three")
    client.link("folder/three", "folder/again")
    client.symlink("../1", "folder/link")
    client.chmod("folder/three", 0o640)
    client.truncate("folder/4097", 100)
    client.utime("folder/0", ns=(10**18, 10**18 + 5))
    client.remove("folder/1048575")
    folder = export / "folder"
    expect(not (folder / "3").exists() and (folder / "three").stat().st_nlink == 2, "rename and link")
    expect(client.readlink("folder/link") == os.readlink(folder / "link") == "../1", "symbolic link")
    expect((folder / "three").stat().st_mode & 0o7777 == client.stat("folder/three").mode & 0o7777 == 0o640, "mode")
    expect((folder / "4097").stat().st_size == 100, "truncate")
    expect((folder / "0").stat().st_mtime_ns == client.stat("folder/0").mtime == 10**18 + 5, "time")
    expect(not (folder / "1048575").exists(), "remove")
    for action, kind in (
        (lambda: client.stat("absent"), FileNotFoundError),
        (lambda: client.mkdir("folder"), FileExistsError),
        (lambda: client.rmdir("folder"), OSError),
    ):
        try:
            action()
        except (kind, nfs_rs.NfsError) as error:
            print("refused as it must:", type(error).__name__, error)
        else:
            sys.exit("nfs-rs: a wrong request was accepted")
    expect(client.fs_stat() is not None and client.fs_info() is not None, "FSSTAT and FSINFO")


async def use_together(export):
    """Writes and reads files with several calls in flight."""
    client = await nfs_rs.AsyncClient.connect(URL, **OPTIONS)
    contents = {f"folder/async-{number}": os.urandom(3 << 20) for number in range(8)}

    async def write(name, data):
        file = await client.open(name, "w+b")
        await file.write(data)
        await file.close()

    async def read(name):
        file = await client.open(name, "rb")
        data = await file.read()
        await file.close()
        return data

    await asyncio.gather(*(write(name, data) for name, data in contents.items()))
    read_back = await asyncio.gather(*(read(name) for name in contents))
    for (name, data), back in zip(contents.items(), read_back):
        expect(back == data == (export / name).read_bytes(), f"data of {name}")
    await client.close()


def main():
    export = pathlib.Path(sys.argv[1])
    exports = nfs_rs.list_exports("127.0.0.1", **OPTIONS)
    expect(["/e"] == [entry.path for entry in exports], f"exports: {exports}")
    with nfs_rs.Client.connect(URL, **OPTIONS) as client:
        use(client, export)
    asyncio.run(use_together(export))
    print("nfs-rs", nfs_rs.__version__, "did all", flush=True)
    # The threads of nfs-rs 0.8.7 sometimes crash while the interpreter ends.
    os._exit(0)


main()
