package flight

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// ReadTokens reads a file of tokens, one a line; empty lines and those that begin with
// # do not count. Tokens stand in files because arguments show in lists of processes.
func ReadTokens(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var tokens []string
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if line != "" && !strings.HasPrefix(line, "#") {
			tokens = append(tokens, line)
		}
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("flight: %s holds no token; write one a line", path)
	}
	return tokens, nil
}

// guard knows the tokens by their digests, so that comparing one tells nothing of its
// length or its first bytes.
type guard [][sha256.Size]byte

func newGuard(tokens []string) guard {
	var g guard
	for _, t := range tokens {
		g = append(g, sha256.Sum256([]byte(t)))
	}
	return g
}

// check asks the call's metadata for "authorization: Bearer TOKEN".
func (g guard) check(ctx context.Context) error {
	if len(g) == 0 {
		return nil
	}
	given := metadata.ValueFromIncomingContext(ctx, "authorization")
	for _, v := range given {
		scheme, token, _ := strings.Cut(v, " ")
		if !strings.EqualFold(scheme, "bearer") {
			continue
		}
		digest, known := sha256.Sum256([]byte(strings.TrimSpace(token))), 0
		for i := range g {
			known |= subtle.ConstantTimeCompare(digest[:], g[i][:])
		}
		if known == 1 {
			return nil
		}
	}
	if len(given) == 0 {
		return status.Error(codes.Unauthenticated, "flight: no token; send authorization: Bearer TOKEN with each call")
	}
	return status.Error(codes.Unauthenticated, "flight: the token is not known here")
}
