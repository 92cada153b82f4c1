package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// sobel compares the servers for several sizes.
func (b *bench) sobel() (err error) {
	ours, err := b.ours()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.stop()) }()
	peer, err := b.peer("aiohttp", "aiohttp_sobel.py")
	if err != nil {
		return err
	}
	grpcPeer, err := b.peer("grpc", "grpc_sobel.py")
	if err != nil {
		return err
	}
	for _, p := range []*server{peer, grpcPeer} {
		if p != nil {
			defer func() { _ = p.stop() }()
		}
	}
	for _, size := range []struct {
		name string
		side int
	}{{"1 KiB", 16}, {"64 KiB", 128}, {"1 MiB", 512}} {
		s := spec{model: "sobel", height: size.side, width: size.side, clients: 32}
		ways := []*way{{name: "REST", server: ours, spec: s.to("v2", ours.at["listening"])}, {name: "gRPC", server: ours, spec: s.to("grpc", ours.at["gRPC"])}}
		if peer != nil {
			ways = append(ways, &way{name: "aiohttp", server: peer, spec: s.to("bare", peer.at["listening"])})
		}
		if grpcPeer != nil {
			ways = append(ways, &way{name: "grpc.aio", server: grpcPeer, spec: s.to("grpc", grpcPeer.at["listening"])})
		}
		if err := inTurn(ways, b.rounds, b.seconds); err != nil {
			return err
		}
		table("sobel, "+size.name+", 32 clients", ways)
		if peer == nil {
			continue
		}
		p := ways[2]
		for _, w := range ways[:2] {
			bound(w.name+" to aiohttp, requests a second", w.median(rate)/p.median(rate), ">=", 1.5)
			bound(w.name+" to aiohttp, CPU a request", w.median(cpu)/p.median(cpu), "<=", 0.8)
			bound(w.name+" to aiohttp, 99th percentile", w.median(p99)/p.median(p99), "<=", 1)
		}
		if grpcPeer != nil {
			w, p := ways[1], ways[3]
			bound("gRPC to grpc.aio, requests a second", w.median(rate)/p.median(rate), ">=", 1)
			bound("gRPC to grpc.aio, 99th percentile", w.median(p99)/p.median(p99), "<=", 1)
		}
	}
	return nil
}

// region compares shared memory with request bodies, for one client and a model with little computation.
func (b *bench) region() (err error) {
	ours, err := b.ours("-limit", "1Gi")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.stop()) }()
	const large, small = 64 << 20 / 4, 4 << 10 / 4
	var ways []*way
	for _, c := range []struct {
		name, model string
		n           int
		region      bool
	}{
		{"body, 64 MiB", "touch", large, false}, {"region, 64 MiB", "touch", large, true},
		{"body, 4 KiB", "touch", small, false}, {"region, 4 KiB", "touch", small, true},
		{"identity, body, 64 MiB", "identity", large, false}, {"identity, region, 64 MiB", "identity", large, true},
	} {
		s := spec{protocol: "v2", address: ours.at["listening"], model: c.model, clients: 1, height: c.n, region: c.region}
		ways = append(ways, &way{name: c.name, server: ours, spec: s})
	}
	if err := inTurn(ways, b.rounds, b.seconds); err != nil {
		return err
	}
	table("system shared memory against the binary body, 1 client", ways)
	bound("64 MiB: body to region, time", ways[0].median(p50)/ways[1].median(p50), ">=", 10)
	bound("region: 64 MiB to 4 KiB, time", ways[1].median(p50)/ways[3].median(p50), "<=", 1.3)
	return nil
}

// busy compares workers with plain processes, for a function in pure Python that takes about 50 ms.
func (b *bench) busy() error {
	var plain [2]float64
	var ways []*way
	for n := range plain {
		s, err := b.ours("-workers", strconv.Itoa(n+1))
		if err != nil {
			return err
		}
		defer func() { _ = s.stop() }()
		ways = append(ways, &way{name: fmt.Sprintf("%d workers", n+1), server: s, spec: spec{protocol: "v2", address: s.at["listening"], model: "busy", height: 4, clients: 8}})
	}
	for range b.rounds {
		if err := inTurn(ways, 1, 2*b.seconds); err != nil {
			return err
		}
		for n := range plain {
			rate, err := b.plain(n+1, 2*b.seconds)
			if err != nil {
				return err
			}
			plain[n] += rate / float64(b.rounds)
		}
	}
	table("pure Python of 50 ms, 8 clients", ways)
	gain, theirs := ways[1].median(rate)/ways[0].median(rate), plain[1]/plain[0]
	fmt.Printf("  plain processes: one %.1f calls a second, two %.1f, which is %.2f times as many\n", plain[0], plain[1], theirs)
	bound("gain of a second worker to that of a second process", gain/theirs, ">=", 0.9)
	return nil
}

// plain runs n processes concurrently and returns the sum of their calls per second.
func (b *bench) plain(n int, d time.Duration) (sum float64, err error) {
	rates := make([]float64, n)
	var all errgroup.Group
	for i := range rates {
		all.Go(func() error {
			out, err := exec.Command(b.python, filepath.Join(dir, "bench/peers/plain.py"), strconv.FormatFloat(d.Seconds(), 'f', -1, 64)).Output()
			if err == nil {
				rates[i], err = strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
			}
			return err
		})
	}
	err = all.Wait()
	for _, rate := range rates {
		sum += rate
	}
	return sum, err
}
