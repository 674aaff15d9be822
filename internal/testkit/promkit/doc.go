// Package promkit evaluates the alerts of the problem table with promtool.
package promkit
