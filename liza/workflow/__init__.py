"""How work goes from phase to phase: documents, the engine that reads them, the rules that watch."""
