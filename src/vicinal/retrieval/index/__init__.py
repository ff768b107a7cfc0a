"""Stores of vectors behind one interface: a flat matrix, or Milvus."""
