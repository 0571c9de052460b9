"""What people touch: arguments in, records and pages out. stdout carries only what was asked for."""
