"""A program that trains on a remote device and tells each step; its last line is the result.

Arguments: the number of steps, and the step after which it waits for a line of its parent (none: never).
"""

import sys

import torch

import dgsf


def train(steps, hold):
    torch.manual_seed(7)
    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 8)]
    with dgsf.attach(memory="256MiB") as device:
        model = torch.nn.Sequential(*layers).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        data = torch.randn(32, 64, device=device)
        for step in range(steps):
            loss = model(data).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print("step", step, loss.item(), flush=True)
            if step == hold:
                sys.stdin.readline()
        print("result", sum(parameter.sum().item() for parameter in model.parameters()), flush=True)


try:
    train(int(sys.argv[1]), int(sys.argv[2]))
except dgsf.DgsfError as error:
    print("failed", error.code, error.message, flush=True)
