"""What travels between processes: frames, messages, payloads, the handshake, and the ports between parts."""
