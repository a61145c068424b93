package referee

import (
	"context"
	"flag"
	"io"
)

type benchOptions struct {
	on bool
}

func (b *benchOptions) register(flags *flag.FlagSet)               {}
func (b *benchOptions) wanted() bool                               { return false }
func (b *benchOptions) run(ctx context.Context, out io.Writer) int { return 0 }
