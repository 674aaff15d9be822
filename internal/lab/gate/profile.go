package gate

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Share is the part of all CPU samples in which a function was on the stack.
type Share struct {
	Function string  `json:"function"`
	Percent  float64 `json:"percent"`
}

// keptShares is how many functions of a profile are stored.
const keptShares = 60

func fetch(ctx context.Context, url, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("gate: %s: %s", url, resp.Status)
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o600)
}

var errProfile = errors.New("gate: not a CPU profile")

// Fields of a profile's messages, by https://github.com/google/pprof/blob/main/proto/profile.proto.
const (
	profileSample, profileLocation, profileFunction, profileStrings = 2, 4, 5, 6
	sampleLocations, sampleValues                                   = 1, 2
	locationID, locationLine, lineFunction                          = 1, 4, 1
	functionID, functionName                                        = 1, 2
)

// shares returns the functions of a CPU profile, those that were on the stack most often first.
func shares(raw []byte) ([]Share, error) {
	if z, err := gzip.NewReader(bytes.NewReader(raw)); err == nil {
		if raw, err = io.ReadAll(z); err != nil {
			return nil, fmt.Errorf("%w: %w", errProfile, err)
		}
	}
	type sample struct {
		locations []uint64
		value     uint64
	}
	var samples []sample
	var texts []string
	functions, locations := map[uint64]uint64{}, map[uint64][]uint64{}
	err := fields(raw, func(number protowire.Number, v uint64, b []byte) error {
		switch number {
		case profileSample:
			var s sample
			var values []uint64
			err := fields(b, func(number protowire.Number, v uint64, b []byte) error {
				switch number {
				case sampleLocations:
					s.locations = appendNumbers(s.locations, v, b)
				case sampleValues:
					values = appendNumbers(values, v, b)
				}
				return nil
			})
			if len(values) > 0 {
				s.value = values[len(values)-1]
			}
			samples = append(samples, s)
			return err
		case profileLocation:
			var id uint64
			var lines []uint64
			err := fields(b, func(number protowire.Number, v uint64, b []byte) error {
				switch number {
				case locationID:
					id = v
				case locationLine:
					return fields(b, func(number protowire.Number, v uint64, _ []byte) error {
						if number == lineFunction {
							lines = append(lines, v)
						}
						return nil
					})
				}
				return nil
			})
			locations[id] = lines
			return err
		case profileFunction:
			var id, name uint64
			err := fields(b, func(number protowire.Number, v uint64, _ []byte) error {
				switch number {
				case functionID:
					id = v
				case functionName:
					name = v
				}
				return nil
			})
			functions[id] = name
			return err
		case profileStrings:
			texts = append(texts, string(b))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	total, by := uint64(0), map[uint64]uint64{}
	for _, s := range samples {
		total += s.value
		seen := map[uint64]bool{}
		for _, l := range s.locations {
			for _, f := range locations[l] {
				if name := functions[f]; !seen[name] {
					seen[name] = true
					by[name] += s.value
				}
			}
		}
	}
	if total == 0 {
		return nil, fmt.Errorf("%w: it holds no samples", errProfile)
	}
	var list []Share
	for name, value := range by {
		if name < uint64(len(texts)) {
			short := strings.TrimPrefix(texts[name], "github.com/grapevine-epp/grapevine/")
			list = append(list, Share{short, float64(value*1000/total) / 10})
		}
	}
	slices.SortFunc(list, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Percent, a.Percent), strings.Compare(a.Function, b.Function))
	})
	return list, nil
}

// fields calls each for every field of a message: v holds a number, b bytes.
func fields(raw []byte, each func(number protowire.Number, v uint64, b []byte) error) error {
	for len(raw) > 0 {
		number, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return errProfile
		}
		raw = raw[n:]
		var v uint64
		var b []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(raw)
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(raw)
		default:
			n = protowire.ConsumeFieldValue(number, typ, raw)
		}
		if n < 0 {
			return errProfile
		}
		raw = raw[n:]
		if err := each(number, v, b); err != nil {
			return err
		}
	}
	return nil
}

// appendNumbers appends a repeated number, which is packed or single.
func appendNumbers(dst []uint64, v uint64, packed []byte) []uint64 {
	if packed == nil {
		return append(dst, v)
	}
	for len(packed) > 0 {
		v, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			return dst
		}
		dst, packed = append(dst, v), packed[n:]
	}
	return dst
}

// grown lists functions whose share rose by more than a point and a tenth, largest growth first.
func grown(stored, now []Share) []string {
	was := map[string]float64{}
	for _, s := range stored {
		was[s.Function] = s.Percent
	}
	floor := 0.0 // functions below the stored list had at most the share of its last
	if len(stored) > 0 {
		floor = stored[len(stored)-1].Percent
	}
	type growth struct {
		Share
		was float64
	}
	var list []growth
	for _, s := range now {
		before, ok := was[s.Function]
		if !ok {
			before = floor
		}
		if s.Percent > before+1 && s.Percent > before*1.1 {
			list = append(list, growth{s, before})
		}
	}
	slices.SortFunc(list, func(a, b growth) int { return cmp.Compare(b.Percent-b.was, a.Percent-a.was) })
	var out []string
	for _, g := range list {
		out = append(out, fmt.Sprintf("%5.1f%% of CPU, was %4.1f%%  %s", g.Percent, g.was, g.Function))
	}
	return out
}
