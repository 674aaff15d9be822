package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Error is an answer of the API server that is no success.
type Error struct {
	Code    int    // HTTP status, or the code of an error event
	Reason  string // such as Expired or Forbidden, "" when the answer is not of the API's form
	Message string
	Kind    string // the resource that the answer is about, "" when it does not say
	Name    string // the object that the answer is about, "" when it does not say
	Verb    string // what was asked: get, list, watch, create, patch, delete
	Rule    Rule   // the right that the request took
	cause   string // of the server's own, closer than Reason
}

// Error implements error.
func (e *Error) Error() string {
	switch {
	case e.terminating():
		return "namespace " + e.Rule.Namespace + " is being deleted"
	case e.Code == http.StatusForbidden:
		return "missing right: " + e.Rule.String()
	}
	return fmt.Sprintf("%s %s: %d %s", e.Verb, e.Rule.Resource, e.Code, strings.TrimSpace(e.Message))
}

// Rule is a line of a Role.
type Rule struct {
	Group     string // API group, "" for the core one
	Resource  string
	Verbs     []string
	Namespace string // "" for all
	Name      string // the one object that would do, "" for all
}

// String words the rule as a user enters it.
func (r Rule) String() string {
	s := fmt.Sprintf("apiGroups [%q] resources [%q] verbs [%s]", r.Group, r.Resource, `"`+strings.Join(r.Verbs, `" "`)+`"`)
	if r.Name != "" {
		s += fmt.Sprintf(" resourceNames [%q]", r.Name)
	}
	if r.Namespace == "" {
		return s + " in a ClusterRole"
	}
	return s + " in a Role of namespace " + r.Namespace
}

// status is the API's form of errors.
type status struct {
	Kind    string `json:"kind"`
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		Name   string `json:"name"`
		Kind   string `json:"kind"`
		Causes []struct {
			Reason string `json:"reason"`
		} `json:"causes"`
	} `json:"details"`
}

// errorOf reads a body of the API's form, or any other.
func errorOf(code int, body []byte) *Error {
	var s status
	if json.Unmarshal(body, &s) != nil || s.Kind != "Status" {
		text := string(body)
		if len(text) > 300 {
			text = text[:300]
		}
		return &Error{Code: code, Message: text}
	}
	if s.Code != 0 {
		code = s.Code
	}
	e := &Error{Code: code, Reason: s.Reason, Message: s.Message, Name: s.Details.Name, Kind: s.Details.Kind}
	for _, c := range s.Details.Causes {
		if e.cause = c.Reason; c.Reason == "ResourceVersionTooLarge" {
			e.Reason = c.Reason
		}
	}
	return e
}

// CodeOf returns the HTTP status of the server's answer, 0 when err is not one.
func CodeOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// IsAbsent reports whether the server does not have the kind at all, rather
// than an object of it.
func IsAbsent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == http.StatusNotFound && e.Name == ""
}

// IsGone reports whether the server has the kind and not the object.
func IsGone(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == http.StatusNotFound && e.Name != ""
}

// IsForbidden reports whether a right is missing.
func IsForbidden(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == http.StatusForbidden && !e.terminating()
}

// terminating reports whether nothing may be made in the namespace because it is being
// deleted, which the server words as a right that is missing.
func (e *Error) terminating() bool { return e.cause == "NamespaceTerminating" }

// IsConflict reports whether an object is there already, or is no more of the
// version that was asked for.
func IsConflict(err error) bool { return CodeOf(err) == http.StatusConflict }

// stale reports whether the place that a watch or a list asked for is not
// known to the server, so that all has to be listed again.
func stale(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Code == http.StatusGone || e.Reason == "Expired" || e.Reason == "ResourceVersionTooLarge")
}
