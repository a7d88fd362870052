"""What keeps data private: noise, the grid of messages, and the accounting."""
