"""The shipped log engine on a seeded virtual clock and scheduler, over a simulated space that fails."""
