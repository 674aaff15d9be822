// Package sse splits responses into events, in place.
package sse
