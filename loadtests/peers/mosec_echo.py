"""The JSON echo on mosec with one worker; its own flags say where it listens: `--address 127.0.0.1 --port N`."""

from __future__ import annotations

from typing import Any

from mosec import Server, Worker


class Echo(Worker):  # type: ignore[misc]  # mosec is not typed for us
    def forward(self, data: Any) -> Any:
        return data


def main() -> None:
    server = Server()
    server.append_worker(Echo, num=1)
    server.run()


if __name__ == "__main__":
    main()
