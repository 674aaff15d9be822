package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Error is an error response of the API server.
type Error struct {
	Code    int    // HTTP status, or the code of an error event
	Reason  string // such as Expired or Forbidden; "" if the response is not a Status
	Message string
	Kind    string // the resource concerned, or ""
	Name    string // the object concerned, or ""
	Verb    string // of the request: get, list, watch, create, patch, delete
	Rule    Rule   // permission required by the request
	cause   string // the server's detailed cause
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

// Rule is a rule of a Role.
type Rule struct {
	Group     string // API group, "" for the core group
	Resource  string
	Verbs     []string
	Namespace string // "" for all
	Name      string // the only object needed; "" for all
}

// String formats the rule as in a Role manifest.
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

// status is the API's Status object.
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

// errorOf decodes an error response in the API's form, or any other.
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

// CodeOf returns the HTTP status of a server error, 0 for other errors.
func CodeOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// IsAbsent reports whether the server does not have the resource type, as opposed to an object.
func IsAbsent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == http.StatusNotFound && e.Name == ""
}

// IsGone reports whether the server has the type but not the object.
func IsGone(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == http.StatusNotFound && e.Name != ""
}

// MissingRights returns the rules that the errors report as missing.
func MissingRights(errs ...error) (rules []string) {
	for _, err := range errs {
		var e *Error
		if IsForbidden(err) && errors.As(err, &e) {
			rules = append(rules, e.Rule.String())
		}
	}
	return rules
}

// IsForbidden reports whether a permission is missing.
func IsForbidden(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == http.StatusForbidden && !e.terminating()
}

// terminating reports whether the namespace is being deleted, which the server reports as
// Forbidden.
func (e *Error) terminating() bool { return e.cause == "NamespaceTerminating" }

// IsConflict reports whether an object already exists, or its version has changed.
func IsConflict(err error) bool { return CodeOf(err) == http.StatusConflict }

// stale reports whether the server does not know the requested version, so that all objects must be
// listed again.
func stale(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Code == http.StatusGone || e.Reason == "Expired" || e.Reason == "ResourceVersionTooLarge")
}
