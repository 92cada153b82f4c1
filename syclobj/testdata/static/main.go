// The program of TestStaticProgram opens SYCL and prints why there is none.
package main

import (
	"fmt"
	"os"

	"github.com/usmbridge/usmbridge/syclobj"
)

func main() {
	rt, err := syclobj.Open()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer rt.Close()
	fmt.Println(rt.SYCLError())
}
