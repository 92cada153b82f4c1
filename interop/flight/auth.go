package flight

import (
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

// ReadTokens reads a file with one token per line. Empty lines and lines that begin with # are
// ignored. Tokens are not passed as arguments because lists of processes show arguments.
func ReadTokens(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var tokens []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			tokens = append(tokens, line)
		}
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("flight: %s has no tokens; write one token per line", path)
	}
	return tokens, nil
}

// guard holds the digests of the valid tokens. Comparing digests does not reveal the length or a
// prefix of a token through timing.
type guard [][sha256.Size]byte

func newGuard(tokens []string) guard {
	var g guard
	for _, t := range tokens {
		g = append(g, sha256.Sum256([]byte(t)))
	}
	return g
}

// check returns an error unless the call's metadata has "authorization: Bearer TOKEN" with a valid
// token.
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
		digest, valid := sha256.Sum256([]byte(strings.TrimSpace(token))), 0
		for i := range g {
			valid |= subtle.ConstantTimeCompare(digest[:], g[i][:])
		}
		if valid == 1 {
			return nil
		}
	}
	if len(given) == 0 {
		return status.Error(codes.Unauthenticated, "flight: no token; send authorization: Bearer TOKEN with each call")
	}
	return status.Error(codes.Unauthenticated, "flight: invalid token")
}
