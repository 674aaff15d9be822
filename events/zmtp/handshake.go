package zmtp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// handshake exchanges greetings and READY commands on nc within d and returns the peer's socket
// type. It is the same for both sides of a NULL connection.
func handshake(nc net.Conn, r *reader, self SocketType, d time.Duration) (SocketType, error) {
	if err := nc.SetDeadline(time.Now().Add(d)); err != nil {
		return "", err
	}
	g := greeting()
	if _, err := nc.Write(g[:]); err != nil {
		return "", err
	}
	if err := readGreeting(r); err != nil {
		return "", err
	}
	if _, err := nc.Write(appendReady(nil, self)); err != nil {
		return "", err
	}
	peer, err := readReady(r)
	if err != nil {
		return "", err
	}
	if !self.accepts(peer) {
		return peer, fmt.Errorf("%w: peer is a %s, no partner for %s", ErrProtocol, peer, self)
	}
	return peer, nc.SetDeadline(time.Time{})
}

// readGreeting checks signature, version and mechanism as soon as their bytes arrive, so that other
// protocols are detected early.
func readGreeting(r *reader) error {
	if err := r.need(1); err != nil {
		return err
	}
	if r.buf[r.r] != 0xff {
		return fmt.Errorf("%w: greeting starts with %#02x", ErrProtocol, r.buf[r.r])
	}
	if err := r.need(signatureSize + 1); err != nil {
		return unexpected(err)
	}
	g := r.buf[r.r:]
	if g[signatureSize-1]&1 == 0 || g[signatureSize] < versionMajor {
		return fmt.Errorf("%w: peer speaks ZMTP %d", ErrProtocol, g[signatureSize])
	}
	if err := r.need(greetingSize); err != nil {
		return unexpected(err)
	}
	g = r.buf[r.r : r.r+greetingSize]
	r.r += greetingSize
	r.minor = g[signatureSize+1]
	mechanism := bytes.TrimRight(g[mechanismAt:mechanismAt+mechanismSize], "\x00")
	if string(mechanism) != mechanismNull {
		return fmt.Errorf("%w: peer wants mechanism %q", ErrProtocol, mechanism)
	}
	return nil
}

func appendReady(dst []byte, self SocketType) []byte {
	var props []byte
	props = appendProperty(props, propSocket, string(self))
	if self == DEALER || self == ROUTER {
		props = appendProperty(props, propIdentity, "")
	}
	return appendCommand(dst, cmdReady, props)
}

func appendProperty(dst []byte, name, value string) []byte {
	dst = append(append(dst, byte(len(name))), name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// readReady reads the peer's READY and returns its socket type.
func readReady(r *reader) (SocketType, error) {
	flags, size, err := r.header()
	if err != nil {
		return "", unexpected(err)
	}
	if flags&flagCommand == 0 {
		return "", fmt.Errorf("%w: message before READY", ErrProtocol)
	}
	if size > maxCommand {
		return "", fmt.Errorf("%w: command of %d bytes", ErrTooLarge, size)
	}
	body, err := r.body(nil, int(size))
	if err != nil {
		return "", err
	}
	name, data, err := splitCommand(body)
	switch {
	case err != nil:
		return "", err
	case name == cmdError:
		return "", fmt.Errorf("%w: peer refuses: %q", ErrProtocol, data)
	case name != cmdReady:
		return "", fmt.Errorf("%w: command before READY", ErrProtocol)
	}
	return socketType(data)
}

// socketType returns the Socket-Type of READY's properties. Names are case-insensitive, as RFC 23
// requires.
func socketType(props []byte) (SocketType, error) {
	for len(props) > 0 {
		n := int(props[0])
		if len(props) < 1+n+4 {
			return "", fmt.Errorf("%w: READY: %w", ErrProtocol, io.ErrUnexpectedEOF)
		}
		name := props[1 : 1+n]
		size := uint64(binary.BigEndian.Uint32(props[1+n:]))
		props = props[1+n+4:]
		if size > uint64(len(props)) {
			return "", fmt.Errorf("%w: READY: %w", ErrProtocol, io.ErrUnexpectedEOF)
		}
		if bytes.EqualFold(name, []byte(propSocket)) {
			return SocketType(props[:size]), nil
		}
		props = props[size:]
	}
	return "", fmt.Errorf("%w: READY without %s", ErrProtocol, propSocket)
}
