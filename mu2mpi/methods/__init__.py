"""The methods: what machines send, how far the server moves, and how it is known what that reveals."""
