"""A layer that no library has, in a model of torch: what it computes is one operator, and its
gradients are derived from that."""

from __future__ import annotations

import diptych as dt

# Channels inhibit their neighbours: each is divided by a learned mean of the squares around it.
inhibit = dt.op(
    """
    inhibit(x: [N, C], w: [5]) -> y:
        s[n,c] = 1.0 + sum(w[k] * w[k] * x.zero[n, c + k - 2] ** 2) where c in 0:C
        y[n,c] = x[n,c] / sqrt(s[n,c])
    """
)


def main() -> None:
    try:
        import torch
    except ImportError:
        print("this example needs torch: pip install torch")
        return

    class Inhibit(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.full((5,), 0.1))
            self.inhibit = dt.torch(inhibit)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inhibit(x, self.w)

    print(inhibit.gradient(("x", "w")))
    torch.manual_seed(0)
    layer = Inhibit().double()
    x = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    print("gradcheck:", torch.autograd.gradcheck(layer, (x,)))
    print("gradgradcheck:", torch.autograd.gradgradcheck(layer, (x,)))

    model = torch.nn.Sequential(torch.nn.Linear(8, 32), Inhibit(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x = torch.randn(256, 8)
    y = (x[:, :1] * x[:, 1:2]).tanh()
    for step in range(201):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:3}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
