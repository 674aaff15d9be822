// Package events reads engines' KV-cache event streams.
package events
