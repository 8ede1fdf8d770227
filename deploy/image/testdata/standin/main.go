// SPDX-License-Identifier: Apache-2.0

// Command standin takes the place of tombolo in the tests of the image: quick
// to build, and it says who it is and what it may write.
package main

import (
	"fmt"
	"os"
)

var version = "unset"

func main() {
	fmt.Println("version", version, "uid", os.Getuid(), "gid", os.Getgid())
	for _, path := range []string{"/", "/etc", "/usr/local/bin", "/tmp", "/run/tombolo", "/var/lib/tombolo"} {
		f, err := os.CreateTemp(path, "probe-")
		fmt.Println(path, "writable", err == nil)
		if err == nil {
			f.Close()
		}
	}
}
