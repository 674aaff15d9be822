package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/internal/core"
	"github.com/grapevine-epp/grapevine/cluster/internal/group"
	"github.com/grapevine-epp/grapevine/cluster/internal/logs"
)

// The types of the state machine that the users of a Node, and those who implement
// a Bus, a store or a sink, need. They are declared in internal packages, where their
// fields and methods are documented; this is the only list of them.
type (
	Member     = group.Member
	Position   = logs.Position
	Digest     = logs.Digest
	Delta      = logs.Delta
	Role       = logs.Role
	Verdict    = logs.Verdict
	Share      = group.Share
	Phase      = group.Phase
	SourceView = logs.SourceView
	LogStore   = logs.LogStore
	Dump       = logs.Dump
	Stage      = logs.Stage
	GaugeSink  = core.GaugeSink
	FeedSink   = core.FeedSink
	LogOptions = logs.LogOptions
	Tuning     = group.Options
	Envelope   = group.Envelope
	Traffic    = group.Traffic
	Queue      = group.Queue
)

// Values of the types above.
const (
	RoleNone    = logs.RoleNone
	RoleStandby = logs.RoleStandby
	RoleReader  = logs.RoleReader

	Applied = logs.Applied
	Already = logs.Already
	Gap     = logs.Gap
	Stale   = logs.Stale
	Unknown = logs.Unknown
	Broken  = logs.Broken

	ShareAuto        = group.ShareAuto
	ShareMesh        = group.ShareMesh
	SharePartitioned = group.SharePartitioned

	Settling = group.Settling
	Settled  = group.Settled
	Degraded = group.Degraded
)

// NewMember returns the identity of this process: an ID that no other process
// has, under a name that stays (a host or pod name), so that ownership does
// not move because a replica was restarted.
func NewMember(name, version string) Member {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return Member{
		ID:   name + "-" + hex.EncodeToString(b[:4]),
		Name: name, Version: version,
		Boot: uint64(time.Now().UnixNano()) ^ binary.LittleEndian.Uint64(b[:])<<1 | 1,
	}
}

// ParseShare reads the spelling of a Share: auto, mesh or partitioned.
func ParseShare(s string) (Share, bool) { return group.ParseShare(s) }

// Errors that a LogStore or its dumps return: a delta builds on other content; a snapshot
// is over its limit.
var (
	ErrUnsure   = logs.ErrUnsure
	ErrTooLarge = logs.ErrTooLarge
)
