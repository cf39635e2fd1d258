#include "command_line.h"

int main(int argc, char** argv) { return tessera::cli::command_line(argc, argv); }
