"""The contract between processes: message types, subjects, the codec and the shared settings. Imports msgspec only."""
