package rpc

const peerEnv = "USMBRIDGE_RPC_TEST_PEER"

func stoppedPeer(do, at string) int { return 1 }
