"""`import dgsf.torch` makes the device's name known to torch before anything is attached.

Programs that write `torch.device("dgsf")` at their top need it; what they do with that device before `dgsf.attach()`
says that there is none.  Not part of `import dgsf`: torch holds whatever backend has a name of its own for this
process's accelerator, before CUDA, and a program that only calls functions should not have that done to it.
"""

from dgsf.remoting.guest.backend import register

device = register()  # the remote device, attached or not
