"""One device server as a process of its own: told what to be by arguments, its incarnation by standard input."""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from dgsf.core.devices import DeviceSpec
from dgsf.fabric.device_server import DeviceServer, ServerOptions


async def main() -> None:
    told = json.loads(sys.argv[1])
    server = DeviceServer(
        DeviceSpec(**told["spec"]),
        name=told["name"],
        incarnation=0,
        secret=bytes.fromhex(told["secret"]),
        run_dir=Path(told["run_dir"]),
        shared_name=told["shared_name"],
        options=ServerOptions(preload=()),
    )
    address = await server.start()
    print(json.dumps(asdict(address)), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        await server.set_incarnation(int(line))
        print("ok", flush=True)
    await server.stop()  # whoever started it is gone


asyncio.run(main())
