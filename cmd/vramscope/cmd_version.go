package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"vramscope/internal/cli"
)

func newVersionCommand(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of vramscope and of Go",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			version := "(unknown)"
			goVersion := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				version, goVersion = info.Main.Version, info.GoVersion
			}
			_, err := fmt.Fprintf(env.Stdout, "vramscope %s %s\n", version, goVersion)
			return err
		},
	}
}
