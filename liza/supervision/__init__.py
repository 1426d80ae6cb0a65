"""The process that stays: it keeps workers alive and clears up behind them."""
