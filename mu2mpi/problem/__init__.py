"""What is minimised: softmax regression over a ball."""
