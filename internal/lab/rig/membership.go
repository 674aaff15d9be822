package rig

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Membership is the group that the replicas of a run form: encrypted gossip on
// this machine.
type Membership struct {
	gossip, stream []string // addresses by replica
}

// NewMembership picks addresses for n replicas.
func NewMembership(n int) (*Membership, error) {
	ports, err := FreePorts(2 * n)
	if err != nil {
		return nil, err
	}
	m := &Membership{}
	for i := range n {
		m.gossip = append(m.gossip, fmt.Sprintf("127.0.0.1:%d", ports[2*i]))
		m.stream = append(m.stream, fmt.Sprintf("127.0.0.1:%d", ports[2*i+1]))
	}
	return m, nil
}

// Flags are the flags of serve for replica i. The first key encrypts, all decrypt.
func (m *Membership) Flags(i int, share string, keys ...string) []string {
	out := []string{
		"--cluster", "gossip", "--share", share, "--cluster-bind", m.gossip[i], "--cluster-stream-bind", m.stream[i],
		"--cluster-join", strings.Join(m.gossip, ","),
	}
	for _, k := range keys {
		out = append(out, "--cluster-key-file", k)
	}
	return out
}

// NewKey writes a random key for the group and returns its file.
func (r *Rig) NewKey(name string) (string, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return "", err
	}
	path := filepath.Join(r.Dir, name)
	return path, os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(key)), 0o600)
}

// Sharing returns the flags by which replica i shares with the others.
func (r *Rig) Sharing() (func(i int) []string, error) {
	if r.Share == "" {
		return func(int) []string { return nil }, nil
	}
	m, err := NewMembership(r.Replicas)
	if err != nil {
		return nil, err
	}
	key, err := r.NewKey("group.key")
	return func(i int) []string { return m.Flags(i, r.Share, key) }, err
}

// Sharing is how replicas are connected.
type Sharing string

// The ways.
const (
	Shared Sharing = "shared" // one gossip group
	Apart  Sharing = "cut"    // a group that cannot talk: every replica has another key
	Off    Sharing = "off"    // --cluster none
)

// Connect returns the flags by which replica i shares, or does not.
func (r *Rig) Connect(s Sharing) (func(i int) []string, error) {
	if s == Off {
		return func(int) []string { return nil }, nil
	}
	m, err := NewMembership(r.Replicas)
	if err != nil {
		return nil, err
	}
	keys := make([]string, r.Replicas)
	for i := range keys {
		if i > 0 && s == Shared {
			keys[i] = keys[0]
			continue
		}
		if keys[i], err = r.NewKey(fmt.Sprintf("group-%d.key", i)); err != nil {
			return nil, err
		}
	}
	return func(i int) []string { return m.Flags(i, "partitioned", keys[i]) }, nil
}
