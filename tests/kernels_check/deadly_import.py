"""An import that takes its process with it: what a broken image does to whoever imports it."""

import faulthandler
import os

faulthandler.disable()
os.abort()
