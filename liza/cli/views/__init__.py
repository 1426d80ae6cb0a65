"""What people read: status, explanations, tables."""
