package demo

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// membership is the group that the replicas of a run form: encrypted gossip on
// this machine.
type membership struct {
	gossip, stream []string // addresses by replica
}

// newMembership picks addresses for n replicas.
func newMembership(n int) (*membership, error) {
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	m := &membership{}
	for i := range n {
		m.gossip = append(m.gossip, fmt.Sprintf("127.0.0.1:%d", ports[2*i]))
		m.stream = append(m.stream, fmt.Sprintf("127.0.0.1:%d", ports[2*i+1]))
	}
	return m, nil
}

// flags are the flags of serve for replica i. The first key encrypts, all decrypt.
func (m *membership) flags(i int, share string, keys ...string) []string {
	out := []string{
		"--cluster", "gossip", "--share", share, "--cluster-bind", m.gossip[i], "--cluster-stream-bind", m.stream[i],
		"--cluster-join", strings.Join(m.gossip, ","),
	}
	for _, k := range keys {
		out = append(out, "--cluster-key-file", k)
	}
	return out
}

// newKey writes a random key for the group and returns its file.
func (r *run) newKey(name string) (string, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return "", err
	}
	path := filepath.Join(r.dir, name)
	return path, os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(key)), 0o600)
}

// sharing returns the flags by which replica i shares with the others.
func (r *run) sharing() (func(i int) []string, error) {
	if r.o.Share == "" {
		return func(int) []string { return nil }, nil
	}
	m, err := newMembership(r.o.Replicas)
	if err != nil {
		return nil, err
	}
	key, err := r.newKey("group.key")
	return func(i int) []string { return m.flags(i, r.o.Share, key) }, err
}
