# Lets this package be built against ROS 2 from Python wheels, where no ROS installation has been sourced.
# With a real ROS 2 (no distribution named ros-rosidl-cmake in the Python environment) it does nothing.

set(Python3_FIND_UNVERSIONED_NAMES FIRST)
set(Python3_FIND_VIRTUALENV FIRST)
if(SKBUILD AND Python_EXECUTABLE AND NOT Python3_EXECUTABLE)
  # scikit-build-core names the interpreter that pip runs for find_package(Python); rosidl uses Python3.
  set(Python3_EXECUTABLE "${Python_EXECUTABLE}" CACHE FILEPATH "Interpreter of the wheel being built")
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)

execute_process(
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/ros_wheels_prefix.py"
  OUTPUT_VARIABLE ros_wheels_prefix
  OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
if(NOT ros_wheels_prefix)
  return()
endif()
message(STATUS "Building against the ROS 2 wheels in ${ros_wheels_prefix}")

list(PREPEND CMAKE_PREFIX_PATH "${ros_wheels_prefix}")
if(DEFINED ENV{AMENT_PREFIX_PATH})
  set(ENV{AMENT_PREFIX_PATH} "${ros_wheels_prefix}:$ENV{AMENT_PREFIX_PATH}")
else()
  set(ENV{AMENT_PREFIX_PATH} "${ros_wheels_prefix}")
endif()

# The wheels' imported targets export an include directory of the machine that built them, which CMake refuses because
# it does not exist.
function(ros_wheels_drop_stale_include_directories)
  get_property(targets DIRECTORY PROPERTY IMPORTED_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(directories ${target} INTERFACE_INCLUDE_DIRECTORIES)
    if(directories)
      list(FILTER directories EXCLUDE REGEX "^/opt/python/")
      set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${directories}")
    endif()
  endforeach()
endfunction()

# rosidl puts the headers of Python and NumPy into the exported interface of our generator target. When the virtual
# environment lies inside the source tree CMake refuses to export such a path; nobody who uses the package needs it.
function(ros_wheels_keep_python_headers_private)
  set(target ${PROJECT_NAME}__rosidl_generator_py)
  get_target_property(directories ${target} INTERFACE_INCLUDE_DIRECTORIES)
  set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "$<BUILD_INTERFACE:${directories}>")
endfunction()

cmake_language(DEFER CALL ros_wheels_drop_stale_include_directories)
cmake_language(DEFER CALL ros_wheels_keep_python_headers_private)
