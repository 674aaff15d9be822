package media

import (
	"bytes"
	"encoding/binary"
)

// sniff reports whether engines convert the picture to RGB, which is part of the hash input. It
// uses the first bytes of an image file. known is false for unsupported file kinds and if the bytes
// do not suffice.
func sniff(b []byte) (converted, known bool) {
	switch {
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		return sniffPNG(b[8:])
	case bytes.HasPrefix(b, []byte{0xff, 0xd8, 0xff}):
		return sniffJPEG(b[2:])
	case bytes.HasPrefix(b, []byte("GIF8")):
		return true, true // a palette
	case len(b) >= 16 && string(b[:4]) == "RIFF" && string(b[8:16]) == "WEBPVP8 ":
		return false, true
	}
	return false, false
}

// sniffPNG reads chunks up to the picture: one of transparency counts as alpha.
func sniffPNG(b []byte) (converted, known bool) {
	for first := true; len(b) >= 8; first = false {
		size, kind := int64(binary.BigEndian.Uint32(b)), string(b[4:8])
		switch {
		case first:
			if kind != "IHDR" || size != 13 || len(b) < 8+13 {
				return false, false
			}
			if b[8+9] != 2 { // colour without alpha
				return true, true
			}
		case kind == "tRNS":
			return true, true
		case kind == "IDAT":
			return false, true
		}
		if size+12 > int64(len(b)) {
			return false, false
		}
		b = b[size+12:]
	}
	return false, false
}

// sniffJPEG finds the number of components.
func sniffJPEG(b []byte) (converted, known bool) {
	for len(b) >= 4 && b[0] == 0xff {
		m := b[1]
		if m == 0xff { // filling
			b = b[1:]
			continue
		}
		if m == 0x01 || m >= 0xd0 && m <= 0xd9 { // alone
			b = b[2:]
			continue
		}
		size := int(binary.BigEndian.Uint16(b[2:]))
		if m >= 0xc0 && m <= 0xcf && m != 0xc4 && m != 0xc8 && m != 0xcc {
			if len(b) < 10 {
				return false, false
			}
			return b[9] != 3, true
		}
		if size < 2 || 2+size > len(b) {
			return false, false
		}
		b = b[2+size:]
	}
	return false, false
}
