package wire

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of google.protobuf.Value.
const (
	valueString = 3
	valueStruct = 5
	valueList   = 6
)

// Subset returns the subset hint: the endpoints that the proxy allows. present is false without a
// hint; an empty hint is present. A list has one ip:port per element; some proxies send one
// comma-separated string.
func Subset(metadata []byte) (allowed []string, present bool) {
	value, ok := metadataValue(metadata, NamespaceSubset, KeySubset)
	if !ok {
		return nil, false
	}
	if s, ok := lastBytes(value, valueString); ok {
		return AppendList(nil, s), true
	}
	list, _ := lastBytes(value, valueList)
	for r := (reader{rest: list}); r.next(); {
		if r.num != 1 || r.typ != protowire.BytesType {
			continue
		}
		if s, ok := lastBytes(r.bytes, valueString); ok {
			allowed = AppendList(allowed, s)
		}
	}
	return allowed, true
}

// Served returns the endpoint that responded, or "" if unknown.
func Served(metadata []byte) string {
	value, _ := metadataValue(metadata, NamespaceLB, KeyServed)
	s, _ := lastBytes(value, valueString)
	return string(s)
}

// upstream returns the endpoint that responded from one entry of the attributes, which Envoy sends
// if the filter lists upstream.address under response_attributes.
func upstream(entry []byte) string {
	if k, _ := lastBytes(entry, 1); string(k) != AttributesKey {
		return ""
	}
	fields, _ := lastBytes(entry, 2)
	value, _ := mapEntry(fields, AttributeServed)
	s, _ := lastBytes(value, valueString)
	return string(s)
}

// AppendList appends the trimmed, non-empty elements of a comma-separated list.
func AppendList(dst []string, list []byte) []string {
	for e := range strings.SplitSeq(string(list), ",") {
		if e = strings.TrimSpace(e); e != "" {
			dst = append(dst, e)
		}
	}
	return dst
}

// metadataValue returns an encoded google.protobuf.Value from an encoded config.core.v3.Metadata.
func metadataValue(metadata []byte, namespace, key string) ([]byte, bool) {
	if len(metadata) == 0 {
		return nil, false
	}
	fields, ok := mapEntry(metadata, namespace)
	if !ok {
		return nil, false
	}
	return mapEntry(fields, key)
}

// mapEntry returns a value of the string-keyed map in field 1 of a message:
// Metadata.filter_metadata or Struct.fields.
func mapEntry(message []byte, key string) (value []byte, ok bool) {
	for r := (reader{rest: message}); r.next(); {
		if r.num != 1 || r.typ != protowire.BytesType {
			continue
		}
		if k, _ := lastBytes(r.bytes, 1); string(k) == key {
			value, _ = lastBytes(r.bytes, 2)
			ok = true
		}
	}
	return value, ok
}

// lastBytes returns the last value of a bytes field, following protobuf's rule.
func lastBytes(message []byte, num protowire.Number) (value []byte, ok bool) {
	for r := (reader{rest: message}); r.next(); {
		if r.num == num && r.typ == protowire.BytesType {
			value, ok = r.bytes, true
		}
	}
	return value, ok
}
