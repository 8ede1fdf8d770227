// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/token"
	"slices"
)

// checkLogLines requires a literal as the message of each log line: internal/base/telemetry
// counts lines by message, and a bounded number of messages.
func checkLogLines(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Go((*File).Product) {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			at := messageAt(call)
			if at < 0 || at >= len(call.Args) {
				return true
			}
			if text, is := call.Args[at].(*ast.BasicLit); !is || text.Kind != token.STRING {
				out = append(out, t.breach(f, call,
					"the message of this log line is not a literal: put what varies into attributes"))
			}
			return true
		})
	}
	return out
}

// messageAt is the index of the message among the arguments of a call, -1 if it does not
// log. Loggers are called log or Log.
func messageAt(call *ast.CallExpr) int {
	method, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return -1
	}
	logger := ""
	switch x := method.X.(type) {
	case *ast.Ident:
		logger = x.Name
	case *ast.SelectorExpr:
		logger = x.Sel.Name
	}
	if !slices.Contains([]string{"log", "Log", "logger"}, logger) {
		return -1
	}
	switch method.Sel.Name {
	case "Debug", "Info", "Warn", "Error":
		return 0
	case "DebugContext", "InfoContext", "WarnContext", "ErrorContext":
		return 1
	case "Log", "LogAttrs":
		return 2
	}
	return -1
}
