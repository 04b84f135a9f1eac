package validation

import (
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/parser"

	"github.com/istiod-lite/istiod-lite/api/diag"
)

// Bounds of a CEL expression, which is parsed and not evaluated.
const (
	expressionBytes      = 16 << 10
	expressionsPerObject = 4 * expressionBytes
	expressionDepth      = 64
)

// expression checks the syntax of a CEL expression. Only proxies know the functions that it may call.
func (p fieldRef) expression() {
	if len(p.text()) > expressionBytes {
		p.bad("shorten it", "the expression has %d bytes, more than %d", len(p.text()), expressionBytes)
		return
	}
	if p.expressions += len(p.text()); p.expressions > expressionsPerObject {
		p.bad("split the object, or shorten them", "the expressions of the object together have more than %d bytes", expressionsPerObject)
		return
	}
	c, err := parser.NewParser(parser.Macros(parser.AllMacros...), parser.MaxRecursionDepth(expressionDepth), parser.ErrorReportingLimit(1))
	if err != nil {
		p.add(diag.Error, "Internal", "report it", "the expression could not be judged: %v", err)
		return
	}
	if _, errs := c.Parse(common.NewTextSource(p.text())); len(errs.GetErrors()) > 0 {
		p.bad("write an expression of CEL, such as response.code >= 500", "no expression of CEL: %s", errs.GetErrors()[0].Message)
	}
}
