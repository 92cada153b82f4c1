// Command service will serve models over the Open Inference Protocol; its parts stand in
// internal.
package main

func main() {}
