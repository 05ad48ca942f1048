// The functions of two numbers.
