"""What tests of services share: builders of messages, and a harness that runs one service without a process."""
